"""How reports and runs look in a notebook: one screen of HTML, and pictures of sections."""
