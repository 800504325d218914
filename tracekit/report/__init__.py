"""From a run to a report: the results of the sections, the findings in their order, and all tables."""
