"""Analysis, module by module."""
