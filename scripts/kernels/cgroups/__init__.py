"""Cgroups of version 2 alone: loads in a guest, and checks of their recordings."""
