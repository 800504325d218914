"""Which names in a decoded trace are public, and what takes the place of the others."""
