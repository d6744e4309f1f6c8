"""A server of a trained model over HTTP, and a client that sends requests at a fixed rate."""
