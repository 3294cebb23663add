"""What belongs to the cluster: nodes and tasks that come, change and go while others train.

Begin with ``membership_events``, which takes the events in. ``node_membership`` and
``task_arrivals`` carry them out. ``file_changes`` compares a state with what operators want, and
``change_words`` says what the difference does.
``node_upkeep`` takes nodes out of service for operators, and brings them back.
"""
