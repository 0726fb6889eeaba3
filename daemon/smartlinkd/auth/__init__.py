"""Who may in: the password, the second factor, the tokens and the throttle."""
