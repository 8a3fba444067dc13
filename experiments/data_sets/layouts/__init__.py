"""The layouts that can be converted, by the names that users choose."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.data_sets.layouts.bigearthnet import BigEarthNet
from experiments.data_sets.layouts.class_folders import ClassFolders
from experiments.data_sets.layouts.imdb_wiki import ImdbWiki
from experiments.data_sets.layouts.tiny_imagenet import TinyImageNet
from experiments.data_sets.listing import Layout

LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout for layout in (ClassFolders(), TinyImageNet(), ImdbWiki(), BigEarthNet())
}
