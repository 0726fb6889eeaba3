"""Who may call a crew: its tokens, made anew from one secret, and which of them still count."""
