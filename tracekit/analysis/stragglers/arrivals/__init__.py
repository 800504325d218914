"""When each rank came to each collective and message, who came last and how late, and what had held that rank up."""
