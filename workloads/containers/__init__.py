"""Jobs in Docker containers: images made from this machine's own Python, and runs with limits."""
