"""Supervision on trio, in Erlang/OTP's terms: actors, child specs, restart policies."""
