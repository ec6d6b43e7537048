import os
import sys
import unittest
from datetime import datetime

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from src.booking import Session
from src.report import minutes_by_member


class ReportTest(unittest.TestCase):
    def test_minutes_are_summed_by_member(self):
        day = lambda hour, minute: datetime(2026, 3, 2, hour, minute)
        sessions = [
            Session("ada", "window", day(9, 0), day(9, 45)),
            Session("ben", "north-1", day(9, 0), day(11, 0)),
            Session("ada", "south-2", day(13, 30), day(14, 0)),
            Session("eve", "south-1", day(15, 0)),
        ]
        self.assertEqual(minutes_by_member(sessions), [("ben", 120), ("ada", 75)])


if __name__ == "__main__":
    unittest.main()
