"""Power modes: how many cores a run has and how fast they are, set before it and taken back."""
