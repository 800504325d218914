"""Who holds up the others, and why: arrivals, the attribution of delays, slow links and ranks, the verdict."""
