import os
import sys
import unittest
from datetime import datetime, timedelta

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import config
from src.booking import DeskTaken, LimitReached, Room

NINE = datetime(2026, 3, 2, 9, 0)


class BookingTest(unittest.TestCase):
    def test_a_taken_desk_is_refused(self):
        room = Room()
        room.start("ada", "window", NINE)
        with self.assertRaises(DeskTaken):
            room.start("ben", "window", NINE)

    def test_the_daily_limit_holds(self):
        room = Room()
        for hour in range(config.session_daily_limit):
            session = room.start("ada", "window", NINE + timedelta(minutes=10 * hour))
            room.end(session, session.started + timedelta(minutes=5))
        with self.assertRaises(LimitReached):
            room.start("ada", "window", NINE + timedelta(hours=6))

    def test_the_next_day_counts_anew(self):
        room = Room()
        for _ in range(config.session_daily_limit):
            room.end(room.start("ada", "window", NINE), NINE)
        room.start("ada", "window", NINE + timedelta(days=1))


if __name__ == "__main__":
    unittest.main()
