"""Times as they stand in objects of the API: RFC 3339, whole seconds, UTC."""

from datetime import UTC, datetime


def spelled(seconds: float) -> str:
    """Seconds since the epoch as text."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parsed(text: str | None) -> float | None:
    """Text as seconds since the epoch; None where there is no time in it. A time without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
