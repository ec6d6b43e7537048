"""Starting and ending sessions at the desks."""

from dataclasses import dataclass
from datetime import datetime
from typing import Optional

import config
from src.limits import may_start


@dataclass
class Session:
    member: str
    desk: str
    started: datetime
    ended: Optional[datetime] = None


class LimitReached(Exception):
    """The member has started as many sessions as a day allows."""


class DeskTaken(Exception):
    """Somebody sits at the desk."""


class Room:
    def __init__(self):
        self.sessions = []

    def free_desks(self):
        taken = {s.desk for s in self.sessions if s.ended is None}
        return [desk for desk in config.desks if desk not in taken]

    def start(self, member, desk, now):
        if desk not in self.free_desks():
            raise DeskTaken(desk)
        if not may_start(self.sessions, member, now.date()):
            raise LimitReached(member)
        session = Session(member, desk, now)
        self.sessions.append(session)
        return session

    def end(self, session, now):
        session.ended = now
