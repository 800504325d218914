"""What one rank did, and when: steps, phases, communication, launches, idle time. No module here knows other ranks."""
