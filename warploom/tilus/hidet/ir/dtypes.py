"""tilus.hidet.ir.dtypes: the dtypes of tilus."""

import warploom.tilus as _tilus

globals().update({k: v for k, v in vars(_tilus).items() if isinstance(v, _tilus.DataType)})
