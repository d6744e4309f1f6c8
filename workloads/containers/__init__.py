"""Jobs in Docker containers: images made of this machine's own Python, runs with limits."""
