"""How the attempts of a job that was restarted went: when, on how many ranks, and what each restart cost."""
