//! Every interleaving of a small world.
