"""What the runs of a study say of the papers' claims."""
