"""Packing: how many tensor-parallel groups each node gets, and which slots their ranks get.

A bin packing problem with a preference for the present place. Nodes, domains and slots are numbers
here; ``controller.core.rules.placement`` translates names and calls this room. Read in this order:

``fewest_moves``      ``pack``, the entry: the order in which the methods below are tried.
``exhaustive``        the input (``GroupKind``, ``DomainSite``) and the search through all packings.
``greedy``            one kind of group after the other, each where it is worth most.
``eviction``          which held groups must move where not all can stay.
``eviction_options``  the options of each node, and the cheapest combination of them.
``bin_packing``       whether groups fit at all, where sizes do not divide each other.
``missing_groups``    the groups that tasks lack if every rank that may stay does.
``slot_assignment``   from counts per node to slots and global ranks.
"""
