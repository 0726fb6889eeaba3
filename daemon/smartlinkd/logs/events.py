"""The log records worth finding. Each kind has an id that never changes.

    logger.warning("account %s is now paused", name, extra=LogEvent.ACCOUNT_PAUSED(account=name))

Texts are for people and may change. Searches and alarms go by the id (`MESSAGE_ID` in the journal,
`message_id` in JSON) or the name (`EVENT`, `event`). A new kind gets an id of its own
(`journalctl --new-id128`); one that is no longer logged stays here. `docs/operating.md` says what
each means, and what the owner should do about it.
"""

from __future__ import annotations

from enum import Enum, unique


@unique
class LogEvent(Enum):
    """A kind of log record, by its id."""

    STARTED = "5af15582ecc44c6aa0ce431f60e04494"
    STOPPING = "be88d6f382e147888f6e10040145ed7d"
    STOPPED = "506bdbee83474d83b319260de30785da"
    ESCALATED = "6045edbd866a484ba356639ec5f034ee"
    PART_FAILED = "df92b725f26b401e80ed2feafb58a775"
    WATCHDOG = "6b7772ce62164f818826aa35c4dab26a"
    CONFIG_RELOADED = "0a90602673a24ea2bfc4e5831d1b7baf"
    CONFIG_REFUSED = "0aa3134e55b3403e89cde1bb3726c180"
    COOKIE_KEPT = "104db5d4a03f4347b66c60a66f5d8f1b"
    COOKIE_RESTORED = "fc7569adbb6a4e3f8b5fa1e01c71ce20"
    BROWSER_READY = "41ac5fa2f5ab4ab4ac52b6839c46a5a0"
    BROWSER_RESTARTED = "992dd1d8a3ff410db5d72fb615706e11"
    BROWSER_DOWN = "578e8eb5ef4444ab82426870e4ddb075"
    BROWSER_BACK = "6a9d4303fcfb4784b13448eb46b55983"
    SESSION_LOST = "8acd24b25add47eab51c7ac76e416401"
    ACCOUNT_PAUSED = "9aa559799a5b4aef88ecb07652b4a6e3"
    ACCOUNT_BACK = "741f02f3a6234c3abb447016700b3e96"
    EXECUTION_ACCEPTED = "7e6b0b0ad2ad4e87ac8e30a6121d1759"
    EXECUTION_FINISHED = "9e9f1cea24bf46f29c9f5db683389eb9"
    EXECUTION_INTERRUPTED = "1aeb92df900d465fa44aaf3c574d8107"
    WEBHOOK_GIVEN_UP = "17dda1bcff124d449f0a9e7c67abf628"
    DISK_FULL = "d3b11e791aff4527a154fc3a7a517ee7"
    DISK_HAS_ROOM = "d4d597466cb04cea91a439a2d38a2635"
    GUESSES_SLOWED = "3435e2fb6cef4fa3b59c0b4e085319ef"
    NOTICE_LOST = "a901083df0e84ae8928e74d31af6afbc"
    RECORDS_LOST = "22911530a7d1451db41d0d394712794b"
    COOKIE_MISSING = "d3d3f3c5f44849f1870dc3e362a8150f"
    COOKIE_BACK = "8e8d75e37e604aec84c2e9b133b3f564"
    SYNC_KEY_GUESSED = "bb9c373d268d4f0d9ce0d870c614058d"
    KEY_MADE = "3fe76a5b975949afbb9198f73d3a6228"
    ACCOUNT_REPLACED = "1ce762cbe7ab44fcbb3d73016d751572"

    @property
    def message_id(self) -> str:
        """The id, 128 bits in hexadecimal digits."""
        return self.value

    def __call__(
        self, *, actor: str = "", account: str = "", crew: str = "", kickoff_id: str = ""
    ) -> dict[str, object]:
        """Return the `extra` of a log call about the given subject.

        Args:
            actor: the actor that the record is about, if another one writes it.
            account: the name that is shown for the account.
        """
        about = {"actor": actor, "account": account, "crew": crew, "kickoff_id": kickoff_id}
        return {"event": self, "about": {name: value for name, value in about.items() if value}}
