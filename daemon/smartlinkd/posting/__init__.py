"""One POST of JSON to an address that somebody has named.

The problem: the request is made from inside the owner's network, and whoever is there may hang,
drip, redirect, or be another than the name says. The webhooks of crews and the notices to the owner
have all of that in common, and differ in where they may go, and in what is tried again and when.

The choice: one transport for both, and none of their rules in it. `addresses.py` says where a
request may go, `connecting.py` goes nowhere else, and `sending.py` makes it in bounded time. What
comes of it is an answer, or silence and why (`outcomes.py`); what that means is for who has asked.
"""
