"""What a trace says: views, reports and the what-if of a flush layer."""
