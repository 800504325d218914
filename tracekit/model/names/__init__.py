"""What names stand for: of collectives, of mesh dimensions and groups, of modules."""
