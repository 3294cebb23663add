"""Where observations come from: processes of this node, and its neighbours."""
