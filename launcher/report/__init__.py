"""A job's history as one page, for a person.

story.py     lays the events of a job's nodes over each other: rounds, interruptions, nodes, time (pure)
page.py      the story as HTML, with nothing loaded from elsewhere (pure)
throughput.py  what the workers get done a second, over time (pure)
picture.py   its charts, as SVG (pure)
style.py     what the page looks like, on a phone and on a desk, dark and light
command.py   `elastic-run report`
"""
