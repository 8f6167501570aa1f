# SPDX-License-Identifier: Apache-2.0
"""VideoData: frames of videos as channels of one image."""
import files
import numpy
import pytest
from tool_files import png

import poseidon.caffe as caffe
from poseidon import PoseidonError

FRAMES = 10


@pytest.fixture
def videos(in_folder):
    """A video in colours and one of flow, of eight rows and twelve columns: a pixel of frame n is n, but for the columns of x."""
    folder = files.pathlib.Path("video")
    folder.mkdir()
    for frame in range(1, FRAMES + 1):
        (folder / f"image_{frame:04d}.png").write_bytes(png(numpy.full((8, 12, 3), frame, numpy.uint8)))
        across = numpy.broadcast_to(numpy.arange(12, dtype=numpy.uint8) + 10 * frame, (8, 12)).copy()
        (folder / f"flow_x_{frame:04d}.png").write_bytes(png(across))
        (folder / f"flow_y_{frame:04d}.png").write_bytes(png(numpy.full((8, 12), frame, numpy.uint8)))
    files.write("list.txt", f"video {FRAMES} 3\n")


def batches(count, options, transform="", phase=caffe.TRAIN):
    net = caffe.Net(files.write("net.prototxt", f"""
layer {{ name: "data" type: "VideoData" top: "data" top: "label" transform_param {{ {transform} }}
  video_data_param {{ source: "list.txt" batch_size: 1 {options} }} }}"""), phase)
    found = []
    for _ in range(count):
        net.forward()
        assert net.blobs["label"].data[0] == 3
        found.append(net.blobs["data"].data[0].copy())
    return found


COLOURS = 'modality: RGB name_pattern: "image_%04d.png"'
FLOW = 'modality: FLOW name_pattern: "flow_%c_%04d.png"'


def test_frames_are_drawn_from_each_segment(videos):
    first = set()
    for data in batches(400, COLOURS + " num_segments: 2 new_length: 2"):  # to miss one of 16 pairs is as rare as 1e-10
        frames = data[::3, 0, 0].tolist()  # of four frames the first channel
        assert data.shape == (12, 8, 12) and frames[1] == frames[0] + 1 and frames[3] == frames[2] + 1
        first.add((frames[0], frames[2]))
    assert first == {(a, b) for a in (1, 2, 3, 4) for b in (6, 7, 8, 9)}
    data, = batches(1, COLOURS + " num_segments: 2 new_length: 2", phase=caffe.TEST)
    assert data[::3, 0, 0].tolist() == [3, 4, 8, 9]  # from the middle


def test_flow_has_x_before_y_and_turns_with_the_mirror(videos):
    sides = set()
    for data in batches(20, FLOW + " new_length: 10", "mirror: true is_flow: true"):
        assert data.shape == (20, 8, 12) and (data[1::2, 0, 0] == numpy.arange(1, 11)).all()
        across = numpy.arange(12) + 10 * numpy.arange(1, 11)[:, None]
        mirrored = int(data[0, 0, 0] != across[0, 0])
        sides.add(mirrored)
        assert (data[::2, 0] == (255 - across[:, ::-1] if mirrored else across)).all()
    assert sides == {0, 1}


def test_crops_are_at_corners_and_scaled_to_one_size(videos):
    options = FLOW + " new_length: 1"
    lefts = {data[0, 0, 0] % 10 for data in batches(60, options, "crop_size: 4 fix_crop: true", caffe.TRAIN)}
    assert lefts == {0, 4, 8}  # quarters of the eight columns that are left
    data, = batches(1, options, "crop_size: 4", caffe.TEST)
    assert data[0, 0, 0] % 10 == 4
    shapes = {data.shape for data in batches(10, options, "crop_size: 4 multi_scale: true scale_ratios: [1, 0.875] max_distort: 0")}
    assert shapes == {(2, 4, 4)}
    widths = {int(data[0, 0, 3] - data[0, 0, 0]) for data in batches(40, options, "crop_size: 4 multi_scale: true scale_ratios: [1, 0.5]")}
    assert widths == {3, 6}  # of four columns, and of eight scaled to four


@pytest.mark.parametrize("options, transform, words", [
    (COLOURS.replace("%04d", "%s"), "", "name_pattern is 'image_%s.png', expected a number as in %04d"),
    (FLOW.replace("%c", "x"), "", "expected a %c for x and y and then a number as in %04d"),
    (COLOURS, "crop_size: 9", "frames are 8x12, expected at least the crop's 9x9"),
    (COLOURS, "multi_scale: true", "has multi_scale without crop_size"),
    (COLOURS + " new_length: 0", "", "needs new_length and num_segments above 0"),
    ("modality: RGB", "", "video 1: .*image_000"),
])
def test_refusals_are_a_sentence(videos, options, transform, words):
    with pytest.raises(PoseidonError, match=words):
        batches(1, options, transform)


def test_lines_of_the_list_have_three_words(videos):
    files.write("list.txt", "video ten 3\n")
    with pytest.raises(PoseidonError, match="video 1 is 'video ten 3', expected a folder, how many frames it has, and a label"):
        batches(1, COLOURS)
