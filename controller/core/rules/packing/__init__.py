"""Packing: how many tensor-parallel groups each node gets, and which slots their ranks get.

A bin packing problem with a preference for the present place. Nodes, domains and slots are numbers
here; ``controller.core.rules.placement`` translates names and calls this room.

What goes in: kinds of groups, with what each node holds of them now, and the free workers of every
node. What comes out: for every kind, how many groups each node gets. What holds: all groups are
placed, or none; no node gets more than it has room for; the proofs in ``Packing`` say how good it
is. Equal inputs give equal packings. Nothing is changed: the functions here return new objects.

Read in this order:

``fewest_moves``      ``pack``, the entry: what the best packing is, and the order of the methods.
``exhaustive``        the input (``GroupKind``, ``DomainSite``) and the search through all packings.
``greedy``            one kind of group after the other, each where it is worth most.
``eviction``          which held groups must move where not all can stay.
``eviction_options``  the options of each node, and the cheapest combination of them.
``missing_groups``    the groups that tasks lack if every rank that may stay does.
``slot_assignment``   from counts per node to slots and global ranks.

Rejected:

- Greedy alone. Two half-empty nodes have no room for a group of two, though one move makes it.
- The exhaustive search alone. It is given up beyond a few groups on a few nodes.
- More steps for a smaller spread. Six times as many found none in ten large cases
  (docs/measurements.md, Placements).
"""
