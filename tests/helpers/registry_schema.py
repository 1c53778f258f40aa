"""The registry of deployments' rules for an entry, as JSON Schema: which fields, of which type, from which list.

They are those of ``schemas/deployments-schema.yaml`` in opendp/deployments-registry-data, 2026, without its texts. The
registry judges an entry by ``jsonschema.Draft7Validator`` with checks of formats, after PyYAML has read it.
"""

from __future__ import annotations

from typing import Any

TEXT = {"type": "string"}
NUMBER = {"type": "number"}


def one_of(*values: str | int) -> dict[str, Any]:
    """Return the rule for a value from a list."""
    return {"enum": list(values), "type": "integer" if isinstance(values[0], int) else "string"}


def record(properties: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the rule for a group of these fields and no other."""
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


CURATOR = {
    "type": "object",
    "required": ["data_curator_name", "data_curator_type"],
    "properties": {"data_curator_name": TEXT, "data_curator_type": one_of("Government", "Industry", "Nonprofit")},
}

BASIC = {
    "name": TEXT,
    "data_curators": {"type": "array", "items": CURATOR, "minItems": 1},
    "description": TEXT,
    "intended_use": TEXT,
    "data_product_type": one_of(
        *("Summary statistics", "Machine learning model", "Dataset", "Synthetic data", "Interactive API"), "SQL queries"
    ),
    "data_product_region": TEXT,
    "data_product_sector": one_of("Technology", "Healthcare", "Education", "Government", "Energy", "Finance"),
    "publication_date": {"type": "string", "format": "date"},
}

GROUPS = {
    "basic": record(BASIC, tuple(name for name in BASIC if name != "data_product_sector")),
    "dp_variant": record(
        {
            "variant_name": one_of("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"),
            "data_domain": TEXT,
            "unprotected_quantities": TEXT,
        }
    ),
    "privacy_loss": record(
        {
            "privacy_unit": TEXT,
            "privacy_unit_details": TEXT,
            "number_of_privacy_units": {"type": "integer"},
            "privacy_parameters": record({"epsilon": NUMBER, "delta": {"type": ["number", "string"]}, "rho": NUMBER}),
            "privacy_parameters_details": {},
        }
    ),
    "deployment_model": record(
        {
            "model_name": one_of("Local", "Central", "Shuffle", "Federated", "Varies"),
            "model_name_details": TEXT,
            "trust_assumptions": TEXT,
            "actors": {},
            "release_type": one_of("One release", "Many releases"),
            "release_type_details": TEXT,
            "data_source_type": one_of("Static", "Dynamic"),
            "data_source_type_details": TEXT,
            "access_type": one_of("Interactive", "Non-interactive"),
            "access_type_details": TEXT,
        }
    ),
    "implementation": record(
        {
            "preprocessing_and_hyperparameter_tuning": TEXT,
            "mechanisms": TEXT,
            "composition": TEXT,
            "post_processing": TEXT,
            "justification": TEXT,
            "utility": {},
            "additional_information": {},
        }
    ),
    "administrative": record(
        {
            "evidence_sources": {"type": "object"},
            "status": one_of(
                *("Converted", "Draft", "Pending", "Changes Required", "Approved", "Approved (Update Requested)"),
                "Approved (Pending)",
            ),
            "registry_authors": {"type": "array", "items": TEXT, "minItems": 1},
            "tier": one_of(1, 2, 3),
        },
        ("status", "registry_authors", "tier"),
    ),
}

SCHEMA = record(
    {"url_slug": TEXT, "deployment": record(GROUPS, ("basic", "administrative"))}, ("url_slug", "deployment")
)
