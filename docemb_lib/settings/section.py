"""What all sections of a profile are, and the types that several of them share."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo, field_validator


def _no_null(value: Any) -> Any:
    if isinstance(value, str) and value.lower() in {"null", "none"}:
        raise ValueError(f"got the string {value!r}; to switch it off write None (`-p NAME None`; in YAML: null)")
    return value


def _min_count(value: Any) -> Any:
    if value == "10%" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise ValueError("must be an integer from 1, or '10%'")


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


NoNull = BeforeValidator(_no_null)  # of what None switches off
ProjectionSpec = Annotated[str, BeforeValidator(_as_text)]  # papermill and YAML read a single width as a number
MinCount = Annotated[int | str, BeforeValidator(_min_count)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """pydantic takes true for 1; here it is a slip."""
        if isinstance(value, bool):
            types = _types(cls.model_fields[str(info.field_name)].annotation)
            if types & {int, float} and bool not in types:
                raise ValueError("must be a number")
        return value


def _types(annotation: Any) -> set[Any]:
    """The annotation, or all that its parts admit."""
    return set().union(*map(_types, get_args(annotation))) if get_args(annotation) else {annotation}
