"""Writes examples/data/dates.tsv: days from 1900 to 2099, without repetition, each written in one of ten formats, then TAB and the date in ISO 8601.
usage: python3 tests/reference/dates.py > examples/data/dates.tsv"""
import datetime
import random

MONTHS = "January February March April May June July August September October November December".split()
ROMAN = "I II III IV V VI VII VIII IX X XI XII".split()
DAYS = "Mon Tue Wed Thu Fri Sat Sun".split()


def ordinal(n):
    return f"{n}{'th' if n in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


WAYS = [
    lambda d: f"{MONTHS[d.month - 1]} {d.day}, {d.year}",                       # March 5, 1998
    lambda d: f"{d.day} {MONTHS[d.month - 1]} {d.year}",                        # 5 March 1998
    lambda d: f"{MONTHS[d.month - 1][:3]} {d.day}, {d.year}",                   # Mar 5, 1998
    lambda d: f"{d.day}-{MONTHS[d.month - 1][:3]}-{d.year}",                    # 5-Mar-1998
    lambda d: f"the {ordinal(d.day)} of {MONTHS[d.month - 1]} {d.year}",        # the 5th of March 1998
    lambda d: f"{DAYS[d.weekday()]}, {d.day:02} {MONTHS[d.month - 1][:3]} {d.year}",    # Thu, 05 Mar 1998
    lambda d: f"{d.day:02}.{d.month:02}.{d.year}",                              # 05.03.1998
    lambda d: f"{d.day}.{ROMAN[d.month - 1]}.{d.year}",                         # 5.III.1998
    lambda d: f"{d.year}/{d.month}/{d.day}",                                    # 1998/3/5
    lambda d: f"{d.year}{d.month:02}{d.day:02}",                                # 19980305
]

random.seed(1998)
first, last = datetime.date(1900, 1, 1).toordinal(), datetime.date(2099, 12, 31).toordinal()
for k, day in enumerate(random.sample(range(first, last + 1), 6000)):
    date = datetime.date.fromordinal(day)
    print(f"{WAYS[k % len(WAYS)](date)}\t{date.isoformat()}")
