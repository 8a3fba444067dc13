"""The layouts that can be converted, by the names that users choose."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.data_sets.bigearthnet import BigEarthNet
from experiments.data_sets.class_folders import ClassFolders
from experiments.data_sets.imdb_wiki import ImdbWiki
from experiments.data_sets.listing import Layout
from experiments.data_sets.tiny_imagenet import TinyImageNet

LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout for layout in (ClassFolders(), TinyImageNet(), ImdbWiki(), BigEarthNet())
}
