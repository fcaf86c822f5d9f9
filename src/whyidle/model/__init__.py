"""Records of a run and what is found in it. Frozen, documented field by field, no input or output."""
