"""The runs of a study, held against the papers' claims."""
