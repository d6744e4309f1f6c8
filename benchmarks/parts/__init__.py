"""What benchmarks share: loads, a training job, tools that can be switched on and off."""
