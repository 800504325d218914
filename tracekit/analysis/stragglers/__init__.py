"""Who holds up the others, and why: arrivals, lateness followed back, slow links, the critical path."""
