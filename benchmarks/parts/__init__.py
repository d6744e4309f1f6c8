"""Shared parts of benchmarks: loads, a training job, tools that can be switched on and off."""
