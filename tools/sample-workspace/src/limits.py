"""What a member has used today."""

import config


def sessions_today(sessions, member, day):
    """Number of sessions that the member started on that day."""
    return sum(1 for s in sessions if s.member == member and s.started.date() == day)


def may_start(sessions, member, day):
    """Whether the member may start one more session on that day."""
    return sessions_today(sessions, member, day) < config.session_daily_limit
