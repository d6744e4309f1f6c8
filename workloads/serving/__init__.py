"""A trained model behind HTTP, and a client that asks it at a stated rate."""
