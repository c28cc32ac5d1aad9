"""Read folders of images with captions, in the layouts that people have: tables, COCO, sidecar files."""
