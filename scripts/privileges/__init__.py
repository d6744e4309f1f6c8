"""Records small loads as users with fewer and fewer rights, and compares exact numbers."""
