"""Reads of files and sleeps: loads in a guest, and checks of their recordings."""
