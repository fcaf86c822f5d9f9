"""Store, module by module."""
