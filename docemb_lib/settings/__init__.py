"""The settings of docemb: the sections of a profile, the notebook parameters, and the profile that
holds both.

Each section is a frozen pydantic model. Its fields check single values, its validators check
combinations, and its defaults are those of the thesis.
"""
