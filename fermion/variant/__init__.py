"""Public names only."""

from fermion.variant.values import VariantType as VariantType
from fermion.variant.values import from_json as from_json
from fermion.variant.values import get as get
from fermion.variant.values import parse_path as parse_path
from fermion.variant.values import to_json as to_json
