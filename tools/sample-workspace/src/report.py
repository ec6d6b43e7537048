"""The daily summary for the front desk."""

from collections import defaultdict


def minutes_between(started, ended):
    """Whole minutes of a session within one day."""
    return (ended.hour - started.hour) * 60 + ended.minute - started.minute


def minutes_by_member(sessions):
    """Minutes of all ended sessions, by member, most first."""
    totals = defaultdict(int)
    for session in sessions:
        if session.ended is not None:
            totals[session.member] += minutes_between(session.started, session.ended)
    return sorted(totals.items(), key=lambda item: item[1], reverse=True)
