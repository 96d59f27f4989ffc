"""The image of operands that are Purser's own: the operator's, unless the policy says otherwise."""

from purser.operator.policy.fields import Image


def purser_reference(own: str, image: Image) -> str:
    """``own`` (the operator's image) with the parts that a section of the policy replaces."""
    if is_whole(image.image) and not image.repository and not image.version:
        return image.image
    repository, base, version = split(own)
    repository, base = image.repository or repository, image.image or base
    version = image.version or version
    name = f"{repository}/{base}" if repository else base
    if not version:
        return name
    return f"{name}@{version}" if version.startswith("sha256:") else f"{name}:{version}"


def split(reference: str) -> tuple[str, str, str]:
    """Registry and path, name, and tag or digest; parts that are not there are empty."""
    path, at, digest = reference.partition("@")
    repository, _, base = path.rpartition("/")
    name, _, tag = base.partition(":")
    return repository, name, digest if at else tag


def is_whole(image: str) -> bool:
    """Whether an image's name is a whole reference, with a registry, a tag or a digest."""
    return any(mark in image for mark in "/:@")
